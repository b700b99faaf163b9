package parleytest

import (
	"regexp"
	"sync"
)

// secretRE finds text that looks like a key or a token.
var secretRE = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(?:sk|rk|pk|sess)-[a-z0-9_-]{8,}|\bbearer\s+[a-z0-9._~+/=-]{8,}|\bgh[pousr]_[a-z0-9]{20,}|\bAKIA[0-9A-Z]{16}\b|\beyJ[a-z0-9_-]{10,}\.[a-z0-9_-]{10,}\.[a-z0-9_-]{10,}`)
})

// hideSecrets replaces keys and tokens in a text.
func hideSecrets(s string) string { return secretRE().ReplaceAllString(s, redacted) }
