"""The parts of ./dev. Standard library only: it runs before anything is installed."""
