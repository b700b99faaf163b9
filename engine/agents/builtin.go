package agents

import (
	_ "embed"
	"fmt"
	"sync"

	"github.com/parley-go/parley/engine/internal/frontmatter"
)

// The agents that come with us are files as those of users are.
var (
	//go:embed builtin/general-purpose.md
	generalPurpose []byte
	//go:embed builtin/explore.md
	explore []byte
	//go:embed builtin/plan.md
	plan []byte
	//go:embed builtin/bash.md
	bash []byte
)

// Default is the agent that is meant when none is named.
const Default = "general-purpose"

// BuiltIn returns the agents that come with us. Those that only look have no tool
// that writes, and are marked so that whatever they call must change nothing.
func BuiltIn() []*Definition {
	var list []*Definition
	for _, d := range builtIn() {
		own := *d
		list = append(list, &own)
	}
	return list
}

// builtIn reads the files once: sessions share what they say.
var builtIn = sync.OnceValue(func() []*Definition {
	var list []*Definition
	for _, text := range [][]byte{generalPurpose, explore, plan, bash} {
		d, err := parseFile(text, Builtin)
		if err != nil {
			panic(fmt.Sprintf("agents: a built-in agent cannot be read: %v", err)) // the tests read them
		}
		doc, _ := frontmatter.Parse(text)
		d.ReadOnly, _ = doc.Bool("readOnly")
		list = append(list, d)
	}
	return list
})
