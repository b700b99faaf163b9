package engine

import (
	_ "embed"
)

// basePrompt is our own system prompt.
//
//go:embed prompt.md
var basePrompt string
