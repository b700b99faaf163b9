// Sbom prints the components of a program that Go built, as a CycloneDX 1.6 document:
// the modules with their versions and checksums, as recorded in the program itself. It
// reads only that file, and its output depends only on it.
//
//	go run ./internal/sbom PROGRAM
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM")
		os.Exit(2)
	}
	out, err := describe(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
	fmt.Printf("%s\n", out)
}

type document struct {
	Format      string       `json:"bomFormat"`
	SpecVersion string       `json:"specVersion"`
	Version     int          `json:"version"`
	Metadata    metadata     `json:"metadata"`
	Components  []component  `json:"components"`
	Depends     []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

// describe reads a program.
func describe(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	self := component{
		Type: "application", Ref: "parley", Name: filepath.Base(file), Version: info.Main.Version,
		PURL: purl(info.Main), Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}},
	}
	for _, s := range info.Settings {
		self.Properties = append(self.Properties, property{"go:" + s.Key, s.Value})
	}
	doc := document{Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Metadata: metadata{self}}
	depends := dependency{Ref: self.Ref}
	add := func(c component) {
		doc.Components = append(doc.Components, c)
		depends.On = append(depends.On, c.Ref)
	}
	std := "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")
	add(component{Type: "library", Ref: std, Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go"), PURL: std})
	for _, m := range info.Deps {
		used := *m
		if m.Replace != nil {
			used = *m.Replace
		}
		c := component{Type: "library", Ref: purl(used), Name: used.Path, Version: used.Version, PURL: purl(used)}
		// The checksum of a module covers all its files, so it is not the hash of one
		// file.
		if used.Sum != "" {
			c.Properties = append(c.Properties, property{"go:sum", used.Sum})
			if _, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(used.Sum, "h1:")); err != nil {
				return nil, fmt.Errorf("%s has the sum %q: %w", used.Path, used.Sum, err)
			}
		}
		add(c)
	}
	doc.Depends = []dependency{depends}
	return json.MarshalIndent(doc, "", "  ")
}

// purl returns the package URL of a module.
func purl(m debug.Module) string {
	if m.Version == "" || m.Version == "(devel)" {
		return "pkg:golang/" + m.Path
	}
	return "pkg:golang/" + m.Path + "@" + m.Version
}
