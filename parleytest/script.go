package parleytest

func formatMatcher(m Matcher) string { return "expect " + m.kind + " " + m.text }
func hideSecrets(s string) string    { return s }
