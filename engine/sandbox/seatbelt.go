package sandbox

import (
	"fmt"
	"strings"
	"unicode"
)

// seatbeltServices are the Mach services that a command can look up: those for users
// and groups, without which ls -l prints numbers.
var seatbeltServices = []string{
	"com.apple.system.opendirectoryd.libinfo",
	"com.apple.system.opendirectoryd.membership",
}

// seatbeltFacts are the sysctls that a command can read. The arguments and environments
// of other processes (kern.procargs2) are not among them.
const seatbeltFacts = `(sysctl-name-prefix "hw.") (sysctl-name-prefix "machdep.cpu.") (sysctl-name "kern.argmax" "kern.hostname" "kern.maxfilesperproc" ` +
	`"kern.maxproc" "kern.ngroups" "kern.osproductversion" "kern.osrelease" "kern.ostype" "kern.osvariant_status" "kern.osversion" "kern.secure_kernel" ` +
	`"kern.usrstack64" "kern.version" "sysctl.proc_cputype" "sysctl.proc_native" "vm.loadavg" "vm.pagesize")`

// seatbelt returns the macOS profile of a wall with these grants. The last rule that
// matches decides, so hidden paths come last: they stay hidden if they are created
// while a command runs. It returns an error if a hidden path cannot be represented in a
// profile; such a grant is left out.
func seatbelt(grants []grant, hide []string) (string, error) {
	var b strings.Builder
	rule := func(format string, args ...any) { fmt.Fprintf(&b, "("+format+")\n", args...) }
	rule("version 1")
	rule("deny default")
	rule("allow process-fork")
	rule("allow sysctl-read %s", seatbeltFacts)
	rule("allow signal process-info* (target same-sandbox)")
	for _, name := range seatbeltServices {
		rule("allow mach-lookup (global-name %q)", name)
	}
	// Names, sizes and times are visible, as behind the wall of Linux: paths cannot be
	// resolved without them.
	rule("allow file-read-metadata")
	rule(`allow file-read* (literal "/")`)
	for _, g := range grants {
		path, ok := seatbeltString(g.path)
		if !ok {
			continue
		}
		switch g.right {
		case toList:
			rule("allow file-read* (literal %s)", path)
		case toRead:
			rule("allow file-read* process-exec* file-map-executable (subpath %s)", path)
		case toWrite:
			rule("allow file-read* file-write* file-ioctl process-exec* file-map-executable (subpath %s)", path)
		}
	}
	for _, h := range hide {
		path, ok := seatbeltString(h)
		if !ok {
			return "", fmt.Errorf("sandbox: %q must be hidden, but its name cannot be written in a profile", h)
		}
		rule("deny file-read-data file-read-xattr file-write* process-exec* file-map-executable (subpath %s)", path)
	}
	return b.String(), nil
}

// seatbeltString quotes a path for a profile.
func seatbeltString(path string) (quoted string, ok bool) {
	if path == "" || strings.ContainsFunc(path, func(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }) {
		return "", false
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path) + `"`, true
}
