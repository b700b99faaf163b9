//go:build !unix

package settings

// onlyRoot does nothing on other systems, which rely on the permissions of the
// directory.
func onlyRoot(string) error { return nil }
