package catalog_test

import (
	"testing"

	"github.com/parley-go/parley/engine/model/catalog"
)

// The names are those that the official CLI sends to Bedrock and Vertex.
func TestPlatforms(t *testing.T) {
	c := catalog.New()
	for _, tt := range []struct{ name, region, bedrock, vertex string }{
		{"claude-opus-5-5", "us-west-2", "us.anthropic.claude-opus-5-5", "claude-opus-5-5"},
		{"claude-sonnet-5-5", "us-west-2", "us.anthropic.claude-sonnet-5-5", "claude-sonnet-5-5"},
		{"claude-opus-4-6", "us-west-2", "us.anthropic.claude-opus-4-6-v1", "claude-opus-4-6"},
		{"claude-sonnet-4-6", "us-west-2", "us.anthropic.claude-sonnet-4-6", "claude-sonnet-4-6"},
		{"claude-opus-4-5-20251101", "us-west-2", "us.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5@20251101"},
		{"claude-sonnet-4-5-20250929", "eu-west-1", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5@20250929"},
		{"claude-sonnet-4-5-20250929", "ap-northeast-1", "apac.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5@20250929"},
		{"claude-haiku-4-5", "us-east-1", "us.anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4-5@20251001"},
		{"global.anthropic.claude-sonnet-4-5-20250929-v1:0", "us-east-1", "global.anthropic.claude-sonnet-4-5-20250929-v1:0", "global.anthropic.claude-sonnet-4-5-20250929-v1:0"},
		{"claude-sonnet-4-5@20250929", "us-east-1", "claude-sonnet-4-5@20250929", "claude-sonnet-4-5@20250929"},
		{"mistral-large", "us-east-1", "mistral-large", "mistral-large"},
	} {
		if got := c.OnBedrock(tt.name, tt.region); got != tt.bedrock {
			t.Errorf("%s is %s on Bedrock in %s, want %s", tt.name, got, tt.region, tt.bedrock)
		}
		if got := c.OnVertex(tt.name); got != tt.vertex {
			t.Errorf("%s is %s on Vertex, want %s", tt.name, got, tt.vertex)
		}
	}
}

func TestAlias(t *testing.T) {
	c := catalog.New()
	other := c.Clone()
	other.Alias("sonnet", "claude-sonnet-4-5")
	other.Alias("haiku", "us.anthropic.claude-haiku-4-5-20251001-v1:0")
	if m, _ := other.Resolve("Sonnet"); m.ContextWindow != 200_000 || m.Canonical != "claude-sonnet-4-5" {
		t.Errorf("sonnet is %+v", m)
	}
	if m, _ := other.Resolve("haiku"); m.ID != "us.anthropic.claude-haiku-4-5-20251001-v1:0" || !m.Priced() {
		t.Errorf("haiku is %+v", m)
	}
	if m, _ := c.Resolve("sonnet"); m.ID != "claude-sonnet-5-5" {
		t.Errorf("the original's sonnet is %s", m.ID)
	}
}
