"""Files and folders on the local file system."""
