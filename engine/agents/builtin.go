package agents

import (
	_ "embed"
	"fmt"
	"slices"
	"sync"

	"github.com/parley-go/parley/engine/internal/frontmatter"
)

// The built-in agents are files in the same format as those of users.
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

// Default is the agent that is used when none is named.
const Default = "general-purpose"

// BuiltIn returns the built-in agents. Those that only read have no tool that writes,
// and are marked so that none of their calls may change anything. Nobody may change the
// definitions: conversations share them.
func BuiltIn() []*Definition { return slices.Clone(builtIn()) }

// builtIn parses the files once.
var builtIn = sync.OnceValue(func() []*Definition {
	var list []*Definition
	for _, text := range [][]byte{generalPurpose, explore, plan, bash} {
		d, err := parseFile(text, Builtin)
		if err != nil {
			panic(fmt.Sprintf("agents: a built-in agent cannot be read: %v", err)) // tests parse them
		}
		doc, _ := frontmatter.Parse(text)
		d.ReadOnly, _ = doc.Bool("readOnly")
		list = append(list, d)
	}
	return list
})
