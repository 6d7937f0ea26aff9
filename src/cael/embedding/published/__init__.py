"""CAEL-MIPS and AEL-MIPS as published: the losses, the posterior on each batch, and what is made of them."""
