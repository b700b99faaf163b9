package acp

import (
	"encoding/json"
	"testing"
)

// TestFormFieldsKeepTheirOrder checks that an editor receives the fields of a form in the order of the MCP server.
func TestFormFieldsKeepTheirOrder(t *testing.T) {
	const form = `{"mode":"form","requestedSchema":{"properties":{"age":{"type":"integer"},"name":{"type":"string"},"zip":{"type":"string"}},"type":"object"},"sessionId":"s"}`
	const want = `{"mode":"form","requestedSchema":{"properties":{"zip":{"type":"string"},"age":{"type":"integer"},"name":{"type":"string"}},"type":"object"},"sessionId":"s"}`
	if got := string(orderFields(json.RawMessage(form), []string{"zip", "age", "name"})); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	const page = `{"mode":"url","url":"https://example.com"}`
	if got := string(orderFields(json.RawMessage(page), nil)); got != page {
		t.Errorf("got %s\nwant %s", got, page)
	}
}
