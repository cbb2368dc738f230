"""The client's network, rebuilt from an update and checked against it; a ReLU network's gradient as a sum over rows."""
