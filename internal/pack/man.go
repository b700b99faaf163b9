package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/parley-go/parley/internal/cli"
)

var commandLine = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) +(\S.*)$`)

// manPages returns parley(1), with the flags of the agent, and a page for each command,
// from the help that the program prints.
func manPages(version string, run func(...string) ([]byte, error)) ([]file, error) {
	overview, err := run("help")
	if err != nil {
		return nil, err
	}
	environment, err := run("help", "environment")
	if err != nil {
		return nil, err
	}
	list, _, ok := strings.Cut(string(overview), "\nExamples:")
	if !ok {
		return nil, fmt.Errorf("the help has no examples")
	}
	var b strings.Builder
	head(&b, "parley", version, "the Claude Agent SDK protocol, both ends")
	b.WriteString(".SH SYNOPSIS\n.B parley\n[\\fIflags\\fR] [\\fIprompt\\fR]\n.br\n.B parley\n\\fIcommand\\fR [\\fIarguments\\fR]\n.SH DESCRIPTION\n")
	body(&b, list)
	b.WriteString(".SH OPTIONS\n")
	for _, f := range cli.All() {
		fmt.Fprintf(&b, ".TP\n\\fB%s\\fR", roff(strings.Join(f.Names, ", ")))
		if f.Value != "" {
			fmt.Fprintf(&b, " \\fI%s\\fR", roff(f.Value))
		}
		b.WriteString("\n" + roff(f.Help) + "\n")
	}
	b.WriteString(".SH ENVIRONMENT\n")
	body(&b, string(environment))
	b.WriteString(".SH EXIT STATUS\n0 for success, 1 for failure, 2 for wrong usage.\n.SH SEE ALSO\n")
	pages := []file{{"man/parley.1", nil, 0o644}}
	var see []string
	for _, m := range commandLine.FindAllStringSubmatch(list, -1) {
		if m[1] == "parley" { // the lines before the list
			continue
		}
		help, err := run("help", m[1])
		if err != nil {
			return nil, err
		}
		synopsis, text, _ := strings.Cut(string(help), "\n")
		var page strings.Builder
		head(&page, "parley-"+m[1], version, m[2])
		page.WriteString(".SH SYNOPSIS\n" + roff(synopsis) + "\n.SH DESCRIPTION\n")
		body(&page, text)
		page.WriteString(".SH SEE ALSO\n.BR parley (1)\n")
		pages = append(pages, file{"man/parley-" + m[1] + ".1", []byte(page.String()), 0o644})
		see = append(see, fmt.Sprintf(".BR parley\\-%s (1)", roff(m[1])))
	}
	if len(see) < 20 {
		return nil, fmt.Errorf("only %d commands are in the help", len(see))
	}
	b.WriteString(strings.Join(see, ",\n") + "\n")
	pages[0].data = []byte(b.String())
	return pages, nil
}

func head(b *strings.Builder, name, version, short string) {
	fmt.Fprintf(b, ".TH %s 1 \"\" \"parley %s\" \"\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(roff(name)), version, roff(name), roff(short))
}

// body converts help to roff: a line that ends in a colon before indented lines is a
// heading, indented lines stay unchanged, the rest is paragraphs.
func body(b *strings.Builder, text string) {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	inBlock := false
	for i, line := range lines {
		indented := strings.HasPrefix(line, "  ")
		if indented != inBlock && line != "" {
			b.WriteString(map[bool]string{true: ".PP\n.nf\n", false: ".fi\n"}[indented])
			inBlock = indented
		}
		switch {
		case line == "" && inBlock:
			b.WriteString("\\&\n")
		case line == "":
			b.WriteString(".PP\n")
		case strings.HasSuffix(line, ":") && !indented && i+1 < len(lines) && strings.HasPrefix(lines[i+1], "  ") && len(line) < 40:
			b.WriteString(".SS " + roff(strings.TrimSuffix(line, ":")) + "\n")
		default:
			b.WriteString(roff(line) + "\n")
		}
	}
	if inBlock {
		b.WriteString(".fi\n")
	}
}

// roff escapes a line.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...").Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
