package notebookedit_test

import (
	"os"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/tool/notebookedit"
	"github.com/parley-go/parley/engine/tool/read"
	"github.com/parley-go/parley/engine/tool/tooltest"
)

const one = `{"cells": [{"cell_type": "code", "source": ["x=1"], "metadata": {}, "outputs": [], "execution_count": null, "id": "c1"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}`

func TestReplace(t *testing.T) {
	env := tooltest.Env(t)
	path := tooltest.Write(t, env, "n.ipynb", one)
	if r := tooltest.Do(t, env, notebookedit.New(), "notebook_path", path, "cell_id", "c1", "new_source", "x=2"); !strings.Contains(r.Content.Text, "has not been read yet") {
		t.Errorf("%q", r.Content.Text)
	}
	r := tooltest.Do(t, env, read.New(), "file_path", path)
	if got, want := tooltest.JSON(t, r), `{"type":"notebook","file":{"filePath":"`+path+`","cells":[{"cellType":"code","source":"x=1","cell_id":"c1","language":"python"}]}}`; got != want {
		t.Errorf("%s", got)
	}
	if got := r.Content.String(); got != `<cell id="c1">x=1</cell id="c1">` || len(r.Content.Blocks) != 1 {
		t.Errorf("%q", got)
	}
	r = tooltest.Do(t, env, notebookedit.New(), "notebook_path", path, "cell_id", "c1", "new_source", "x=2")
	if r.Content.Text != "Updated cell c1 with x=2" {
		t.Errorf("%q", r.Content.Text)
	}
	out := r.Structured.(*notebookedit.Output)
	want := "{\n \"cells\": [\n  {\n   \"cell_type\": \"code\",\n   \"source\": \"x=2\",\n   \"metadata\": {},\n   \"outputs\": [],\n   \"execution_count\": null,\n   \"id\": \"c1\"\n  }\n ],\n \"metadata\": {},\n \"nbformat\": 4,\n \"nbformat_minor\": 5\n}"
	if out.UpdatedFile != want || out.OriginalFile != one || out.OldSource != "x=1" || out.CellType != "code" || out.Language != "python" || out.EditMode != "replace" {
		t.Errorf("%+v", out)
	}
	if data, _ := os.ReadFile(path); string(data) != want {
		t.Errorf("%s", data)
	}
}

func TestInsertAndDelete(t *testing.T) {
	env := tooltest.Env(t)
	path := tooltest.Write(t, env, "n.ipynb", one+"\n")
	tooltest.Do(t, env, read.New(), "file_path", path)
	do := func(pairs ...any) *notebookedit.Output {
		t.Helper()
		r := tooltest.Do(t, env, notebookedit.New(), append([]any{"notebook_path", path}, pairs...)...)
		out, ok := r.Structured.(*notebookedit.Output)
		if !ok {
			t.Fatalf("%q", r.Content.Text)
		}
		return out
	}
	out := do("edit_mode", "insert", "cell_type", "markdown", "new_source", "# <Title> & more")
	if !strings.Contains(out.UpdatedFile, `"# <Title> & more"`) || strings.Index(out.UpdatedFile, "Title") > strings.Index(out.UpdatedFile, "x=1") || out.CellID == "" || !strings.HasSuffix(out.UpdatedFile, "}\n") {
		t.Errorf("%+v", out)
	}
	do("edit_mode", "insert", "cell_id", "c1", "cell_type", "code", "new_source", "y=1")
	do("edit_mode", "replace", "cell_id", "cell-1", "cell_type", "markdown", "new_source", "text")
	do("edit_mode", "delete", "cell_id", out.CellID, "new_source", "")
	r := tooltest.Do(t, env, read.New(), "file_path", path)
	if got := r.Content.String(); !strings.HasPrefix(got, `<cell id="c1"><cell_type>markdown</cell_type>text</cell id="c1">`+"\n") || !strings.Contains(got, ">y=1<") {
		t.Errorf("%q", got)
	}
}

func TestRefused(t *testing.T) {
	env := tooltest.Env(t)
	path := tooltest.Write(t, env, "n.ipynb", one)
	bad := tooltest.Write(t, env, "bad.ipynb", "[]")
	tooltest.Do(t, env, read.New(), "file_path", path)
	for _, c := range []struct {
		want  string
		pairs []any
	}{
		{"Cell with ID \"c9\" not found", []any{"notebook_path", path, "cell_id", "c9", "new_source", ""}},
		{"`cell_id` is needed", []any{"notebook_path", path, "new_source", ""}},
		{"`cell_type` is needed", []any{"notebook_path", path, "edit_mode", "insert", "new_source", ""}},
		{"must be one of \"replace\", \"insert\", \"delete\"", []any{"notebook_path", path, "edit_mode", "append", "new_source", ""}},
		{"Use Edit", []any{"notebook_path", "a.txt", "cell_id", "c", "new_source", ""}},
		{"does not exist", []any{"notebook_path", "no.ipynb", "cell_id", "c", "new_source", ""}},
		{"has not been read", []any{"notebook_path", bad, "cell_id", "c", "new_source", ""}},
	} {
		if r := tooltest.Do(t, env, notebookedit.New(), c.pairs...); !r.IsError || !strings.Contains(r.Content.Text, c.want) {
			t.Errorf("%q, want %q", r.Content.Text, c.want)
		}
	}
	if r := tooltest.Do(t, env, read.New(), "file_path", bad); !r.IsError || !strings.Contains(r.Content.Text, "is not a notebook") {
		t.Errorf("%q", r.Content.Text)
	}
}
