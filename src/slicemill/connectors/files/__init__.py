"""Sources that read files and folders of the local file system."""
