"""A local web page over what runs and what ran: ``ina dash``."""
