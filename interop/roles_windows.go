package interop

import "os"

// passed are the signals that a tap passes on.
var passed = []os.Signal{os.Interrupt}
