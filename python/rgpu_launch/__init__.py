"""What starts rgpu, without importing torch: rgpu-run, rgpu-opserver, the autoload hook."""
