// Package search finds files and text in them. Glob and Grep share it.
//
// A walk visits a directory tree in several goroutines. It leaves out what ignore files
// exclude (.gitignore inside a git repository, .ignore and .rgignore anywhere), version
// control directories, and files that the environment hides. It follows no symbolic
// link: every directory and file is opened relative to the directory above it.
package search

import "strings"

// types maps the names of file types to the globs of their files, in one string each.
var types = map[string]string{
	"ada": "*.adb *.ads", "asm": "*.asm *.s *.S", "awk": "*.awk", "bat": "*.bat", "bazel": "*.bzl *.bazel BUILD WORKSPACE MODULE.bazel", "c": "*.c *.h *.H *.cats",
	"clojure": "*.clj *.cljc *.cljs *.cljx", "cmake": "*.cmake CMakeLists.txt", "cpp": "*.C *.cc *.cpp *.cxx *.c++ *.h *.H *.hh *.hpp *.hxx *.h++ *.inl *.cppm *.ixx",
	"crystal": "*.cr *.ecr Projectfile shard.yml", "cs": "*.cs", "csharp": "*.cs", "css": "*.css *.scss", "csv": "*.csv", "cuda": "*.cu *.cuh", "d": "*.d", "dart": "*.dart",
	"diff": "*.patch *.diff", "docker": "*Dockerfile*", "elixir": "*.ex *.exs *.eex *.heex *.leex *.livemd", "elm": "*.elm", "erlang": "*.erl *.hrl", "fish": "*.fish",
	"fortran": "*.f *.F *.f77 *.F77 *.f90 *.F90 *.f95 *.F95 *.for", "fsharp": "*.fs *.fsx *.fsi", "go": "*.go", "gradle": "*.gradle *.gradle.kts gradle.properties", "graphql": "*.graphql *.graphqls",
	"groovy": "*.groovy *.gradle", "h": "*.h *.hh *.hpp", "haskell": "*.hs *.lhs *.hsc *.cpphs *.c2hs", "html": "*.htm *.html *.ejs", "ini": "*.ini", "java": "*.java *.jsp *.jspx *.properties",
	"js": "*.js *.jsx *.vue *.cjs *.mjs", "json": "*.json composer.lock *.sarif", "jsonl": "*.jsonl", "julia": "*.jl", "jupyter": "*.ipynb *.jpynb", "kotlin": "*.kt *.kts", "less": "*.less",
	"lisp": "*.el *.jl *.lisp *.lsp *.sc *.scm", "lock": "*.lock package-lock.json", "log": "*.log", "lua": "*.lua",
	"make": "[Gg][Nn][Uu]makefile [Mm]akefile [Gg][Nn][Uu]makefile.am [Mm]akefile.am *.mk *.mak", "markdown": "*.markdown *.md *.mdown *.mdwn *.mdx *.mkd *.mkdn",
	"md": "*.markdown *.md *.mdown *.mdwn *.mdx *.mkd *.mkdn", "nim": "*.nim *.nimf *.nimble *.nims", "nix": "*.nix", "objc": "*.h *.m", "ocaml": "*.ml *.mli *.mll *.mly",
	"perl": "*.perl *.pl *.PL *.plh *.plx *.pm *.t", "php": "*.php *.php3 *.php4 *.php5 *.php7 *.php8 *.pht *.phtml", "powershell": "*.cdxml *.ps1 *.ps1xml *.psd1 *.psm1",
	"proto": "*.proto", "protobuf": "*.proto", "py": "*.py *.pyi", "python": "*.py *.pyi", "r": "*.R *.r *.Rmd *.rmd *.Rnw *.rnw", "rst": "*.rst",
	"ruby": "*.rb *.gemspec *.rake *.rbw *.thor Gemfile Rakefile config.ru .irbrc", "rust": "*.rs", "sass": "*.sass *.scss", "scala": "*.scala *.sbt",
	"sh":  "*.bash *.bashrc *.csh *.cshrc *.ksh *.kshrc *.sh *.tcsh *.zsh .bash_login .bash_logout .bash_profile .bashrc .cshrc .kshrc .login .logout .profile .tcshrc .zlogin .zlogout .zprofile .zshenv .zshrc bash_login bash_logout bash_profile bashrc profile zlogin zlogout zprofile zshenv zshrc",
	"sql": "*.sql *.psql", "svelte": "*.svelte *.svelte.ts", "swift": "*.swift", "tcl": "*.tcl", "tex": "*.tex *.ltx *.cls *.sty *.bib *.dtx *.ins", "tf": "*.tf *.tf.json *.tfvars *.tfvars.json *.terraformrc terraform.rc *.tfrc",
	"toml": "*.toml Cargo.lock", "ts": "*.ts *.tsx *.cts *.mts", "typescript": "*.ts *.tsx *.cts *.mts", "txt": "*.txt", "vim": "*.vim .vimrc vimrc .gvimrc gvimrc _vimrc _gvimrc", "vue": "*.vue",
	"xml": "*.xml *.xml.dist *.dtd *.xsl *.xslt *.xsd *.xjb *.rng *.sch *.xhtml", "yaml": "*.yaml *.yml", "zig": "*.zig", "zsh": "*.zsh .zshenv zshenv .zlogin zlogin .zlogout zlogout .zprofile zprofile .zshrc zshrc",
}

// Types returns the known file types, each with the globs of its files.
func Types() map[string][]string {
	all := make(map[string][]string, len(types))
	for name, globs := range types {
		all[name] = strings.Fields(globs)
	}
	return all
}
