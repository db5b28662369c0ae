"""How others ask and steer a running gateway."""
