# The device is the disk itself: nothing is to be done before.
