"""What leaves a client: here the gradient of federated SGD, and the check that a record of it is true."""
