"""One module per page; each draws what others computed."""
