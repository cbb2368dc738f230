"""What leaves a client, a gradient (FedSGD) or a weight delta (FedAvg), and the check that a record of it is true."""
