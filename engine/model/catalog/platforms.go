package catalog

import (
	"regexp"
	"strings"
	"sync"
)

// Clone returns an independent catalog with the same models.
func (c *Catalog) Clone() *Catalog {
	out := &Catalog{byName: make(map[string]*Info, len(c.byName))}
	out.models = append(out.models, c.models...)
	for name, m := range c.byName { // the models are immutable
		out.byName[name] = m
	}
	return out
}

// Alias makes a name such as "sonnet" stand for another model.
func (c *Catalog) Alias(alias, name string) {
	info, _ := c.Resolve(name)
	c.byName[strings.ToLower(alias)] = &info
}

// dated matches an id that ends in a date.
var dated = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(claude-.+)-(\d{8})$`) })

// OnBedrock returns Bedrock's name for a model, in the geography of a region. A name
// that is not Anthropic's own is returned unchanged.
func (c *Catalog) OnBedrock(name, region string) string {
	id, ok := c.own(name)
	if !ok {
		return name
	}
	geography := "us"
	for prefix, g := range map[string]string{"eu-": "eu", "ap-": "apac", "us-gov-": "us-gov"} {
		if strings.HasPrefix(region, prefix) {
			geography = g
		}
	}
	switch {
	case dated().MatchString(id):
		id += "-v1:0"
	case id == "claude-opus-4-6":
		id += "-v1"
	}
	return geography + ".anthropic." + id
}

// OnVertex returns Vertex's name for a model. A name that is not Anthropic's own is
// returned unchanged.
func (c *Catalog) OnVertex(name string) string {
	id, ok := c.own(name)
	if !ok {
		return name
	}
	return dated().ReplaceAllString(id, "$1@$2")
}

// own returns the id, with its date, of a model with one of Anthropic's own names.
func (c *Catalog) own(name string) (string, bool) {
	m, ok := c.byName[strings.ToLower(name)]
	if !ok || !strings.HasPrefix(m.ID, "claude-") || strings.ContainsAny(m.ID, "@:.") {
		return "", false
	}
	return m.ID, true
}
