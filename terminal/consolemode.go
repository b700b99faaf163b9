package terminal

// The modes of a Windows console that a screen changes.
const (
	processedOutput = 0x1
	virtualOutput   = 0x4 // escape sequences
	insertMode      = 0x20
	quickEdit       = 0x40 // the mouse selects text
	extendedFlags   = 0x80 // the two above count
)

// outputMode returns the mode of the output in which escape sequences work.
func outputMode(before uint32) uint32 { return before | processedOutput | virtualOutput }

// inputMode returns a mode of the input in which the mouse selects text if it did before.
func inputMode(now, before uint32) uint32 {
	return now | before&(quickEdit|insertMode) | extendedFlags
}
