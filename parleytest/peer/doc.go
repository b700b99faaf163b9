// Package peer is a scripted peer for either end of the protocol.
package peer
