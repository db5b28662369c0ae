"""The registry of the flows of this gateway, and the checkpoint from which each of them resumes."""
