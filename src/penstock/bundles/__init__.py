"""The user's code on its way to the nodes: packed, signed, verified, unpacked."""
