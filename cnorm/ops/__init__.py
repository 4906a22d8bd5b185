"""The public functions, one module each: signature, checks, and the call of the backend's kernel."""
