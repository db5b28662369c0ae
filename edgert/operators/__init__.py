"""What a flow is made of: each family's specification and logic in one file."""
