"""The control socket: connections, messages and authentication of peers."""
