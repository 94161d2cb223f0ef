"""*Add server* in one box: a URL, a command line or a pasted configuration becomes the fields of the form."""
