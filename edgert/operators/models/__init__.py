"""Models: their JSON form, prediction, and training within a flow."""
