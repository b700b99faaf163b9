package spelling

import "testing"

func TestClosest(t *testing.T) {
	names := []string{"addr", "m", "model", "models", "max-turns", "verbose"}
	for word, want := range map[string]string{
		"model": "model", "modle": "model", "maxturns": "max-turns", "max": "max-turns", "verbos": "verbose", "modl": "model", "frobnicate": "", "": "", "x": "", "listen": "addr", "port": "addr",
	} {
		if got := Closest(word, names); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
