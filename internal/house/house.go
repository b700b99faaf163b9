// Package house checks the rules of this repository with tests.
//
// A rule that nobody checks is a wish. The tests of this package read the tree
// and the module graph and fail with the file to fix: which package may import
// which, what the SDK may link, that everything exported is documented, that
// links and code in the documentation work, and that nothing of one machine or
// one working day is left behind. The package has no code for others to import.
package house
