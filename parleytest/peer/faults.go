package peer

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
)

//go:embed testdata/faults/*.txtar
var faultFiles embed.FS

// parsedFaults holds the faults in order; the files are part of the package, so an
// invalid one is a bug of it.
var parsedFaults = sync.OnceValue(func() []*Script {
	entries, err := faultFiles.ReadDir("testdata/faults")
	if err != nil {
		panic(err)
	}
	var all []*Script
	for _, e := range entries {
		data, err := faultFiles.ReadFile(path.Join("testdata/faults", e.Name()))
		if err != nil {
			panic(err)
		}
		all = append(all, MustParse(strings.TrimSuffix(e.Name(), ".txtar"), string(data)))
	}
	return all
})

// Faults returns the scripts of all faults that an SDK must survive, sorted by
// name. The Doc of each describes the behavior of the peer and what must hold.
func Faults() []*Script { return slices.Clone(parsedFaults()) }

// LookupFault returns the fault of that name.
func LookupFault(name string) (*Script, bool) {
	for _, s := range parsedFaults() {
		if s.Name == name {
			return s, true
		}
	}
	return nil, false
}

// Fault returns the fault of that name. It panics if there is none.
func Fault(name string) *Script {
	s, ok := LookupFault(name)
	if !ok {
		var names []string
		for _, f := range parsedFaults() {
			names = append(names, f.Name)
		}
		panic(fmt.Sprintf("peer: no fault %q (known: %s)", name, strings.Join(names, ", ")))
	}
	return s
}
