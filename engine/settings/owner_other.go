//go:build !unix

package settings

// onlyRoot is left to the rights of the directory on other systems.
func onlyRoot(string) error { return nil }
