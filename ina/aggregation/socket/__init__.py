"""The control socket: connections, messages and who is at the other end."""
