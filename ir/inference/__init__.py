"""What calls return: values inferred from recorded ones, by kernels, fake tensors or sample sizes."""
