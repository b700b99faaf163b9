# Makes the place of an attack in the empty directory $BASE. $PLACE says which, and
# $MARK names the witness file. $INSIDE and $OUTSIDE are the secrets of files inside
# and outside of the workspace.
set -eu
umask 022
export HOME=$BASE/home WS=$BASE/w/app OUT=$BASE/out
export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' GIT_COMMITTER_DATE='2024-01-01T00:00:00Z'

app() {
	mkdir -p "$WS" "$HOME/.ssh" "$HOME/.aws" "$HOME/.config" "$OUT" "$BASE/w/app2" "$BASE/w/app_secret" "$BASE/tmp"
	echo "$OUTSIDE" >"$HOME/.ssh/id_ed25519"
	echo "aws_secret_access_key = $OUTSIDE" >"$HOME/.aws/credentials"
	echo "machine evil.test login x password $OUTSIDE" >"$HOME/.netrc"
	echo "$OUTSIDE" | tee "$HOME/notes.txt" "$OUT/secret.txt" "$BASE/w/app2/k" "$BASE/w/app_secret/k" >/dev/null
	touch "$OUT/list-$OUTSIDE" "$HOME/list-$OUTSIDE" "$BASE/w/app2/list-$OUTSIDE"
	chmod 600 "$HOME/.ssh/id_ed25519" "$HOME/.aws/credentials" "$HOME/.netrc"
	printf '# start-up file\n' >"$HOME/.bashrc"
	cat >"$HOME/.gitconfig" <<-E
		[user]
			name = Ada
			email = ada@example.test
		[init]
			defaultBranch = main
		[protocol "file"]
			allow = always
	E
	cd "$WS"
	mkdir -p sub/d src c secrets bin
	printf 'alpha\nbeta\ngamma\n' >a.txt
	printf 'gamma\nalpha\n' >b.txt
	printf 'x=1\nname,n\na,1\nb,2\n' >sub/c.txt
	printf 'name,n\na,1\nb,2\n' >data.csv
	printf '{"a":1,"b":[1,2]}\n' >data.json
	printf 'int main(void) { return 0; }\n' >c/main.c
	printf 'package main\n\nfunc main() {}\n' >src/main.go
	printf 'module example.test/app\n\ngo 1.21\n' >go.mod
	printf 'print("app")\n' >app.py
	printf 'console.log("app")\n' >index.js
	printf '{"name":"app","version":"1.0.0","scripts":{"test":"true","lint":"true","build":"true"}}\n' >package.json
	printf 'all:\n\t@true\ntest lint lint-fix:\n\t@true\n' >Makefile
	printf 'KEY=%s\n' "$INSIDE" >.env
	printf 'KEY=%s\n' "$INSIDE" >sub/.env
	printf '%s\n' "$INSIDE" >secrets/key
	printf ': >%s\n' "$MARK" >evil.sh
	printf '#!/bin/sh\n: >%s\n' "$MARK" >evil
	chmod +x evil
	cp evil bin/evil
	ln -s .env e
	ln .env h
	ln -s "$OUT" out
	ln -s "$HOME" homelink
	ln -s .. up
	ln -s ../../home/.bashrc rc
	git init -q --template= .
	mkdir .git/hooks .git/info
	printf '.env\nsecrets\n/out\n/homelink\n/up\n/rc\n/e\n/h\n' >.git/info/exclude
	git add -A
	git commit -qm one
	echo delta >>a.txt
	git commit -qam two
	git branch feature
	git tag v1
	git init -q --bare --template= "$BASE/remote.git"
	git remote add origin "$BASE/remote.git"
	git push -q origin main
	git gc -q
	echo epsilon >>a.txt
}

# Places whose repository is hostile: its configuration, attributes, hooks or objects
# make git run something.

place_fsmonitor() { git config core.fsmonitor "touch $MARK; false"; }
place_fsmonitorfile() { cp evil .git/monitor; git config core.fsmonitor .git/monitor; }
place_extdiff() { git config diff.external "$WS/evil"; }
place_diffdriver() { echo '*.txt diff=x' >.git/info/attributes; git config diff.x.command "$WS/evil"; }
place_textconv() { echo '*.txt diff=x' >.gitattributes; git config diff.x.textconv "touch $MARK; cat"; }
place_filter() { echo '*.txt filter=x' >.gitattributes; git config filter.x.clean "touch $MARK; cat"; git config filter.x.smudge "touch $MARK; cat"; touch a.txt b.txt; }
place_process() { echo '*.txt filter=x' >.git/info/attributes; git config filter.x.process "$WS/evil"; touch a.txt b.txt; }
place_globalattributes() { printf '*.txt diff=x filter=x\n' >attr; git config core.attributesFile "$WS/attr"; git config diff.x.textconv "touch $MARK; cat"; git config filter.x.clean "touch $MARK; cat"; touch a.txt; }
place_alias() {
	for name in lg st co br di lo wip; do git config alias.$name "!touch $MARK"; done
	git config alias.c2 "-c core.fsmonitor='touch $MARK;false' status"
}
place_hooks() {
	for name in post-index-change pre-commit commit-msg post-commit post-checkout post-merge pre-push reference-transaction pre-rebase pre-auto-gc post-rewrite applypatch-msg prepare-commit-msg; do cp evil .git/hooks/$name; done
	touch a.txt b.txt
}
place_hookspath() { mkdir hk; for name in post-index-change pre-commit post-checkout; do cp evil hk/$name; done; git config core.hooksPath hk; touch a.txt b.txt; }
place_worktreeconfig() { git config extensions.worktreeConfig true; git config --worktree core.fsmonitor "touch $MARK; false"; }
place_include() { printf '[core]\n\tfsmonitor = touch %s; false\n' "$MARK" >inc; git config include.path ../inc; }
place_includeif() { printf '[core]\n\tfsmonitor = touch %s; false\n' "$MARK" >inc; git config "includeIf.gitdir:$BASE/.path" "$WS/inc"; git config includeIf.onbranch:main.path "$WS/inc"; }
place_gitfile() { mv .git dotgit; echo 'gitdir: dotgit' >.git; git config core.fsmonitor "touch $MARK; false"; }
place_gitlinkdir() { mv .git sub/g; ln -s sub/g .git; git config core.fsmonitor "touch $MARK; false"; }
place_bare() {
	git clone -q --bare . sub/b; mv sub/b/* sub/d/; git -C sub/d config core.bare false
	git -C sub/d config core.worktree "$WS"; git -C sub/d config core.fsmonitor "touch $MARK; false"
}
place_nested() { git init -q --template= sub/d; cd sub/d; echo x >x; git add x; git commit -qm x; git config core.fsmonitor "touch $MARK; false"; git config diff.external "$WS/evil"; echo y >x; }
place_submodule() {
	git -c protocol.file.allow=always submodule --quiet add "$BASE/remote.git" mod
	git commit -qm mod; git -C mod config core.fsmonitor "touch $MARK; false"; git -C mod config diff.external "$WS/evil"; echo x >>mod/a.txt
}
place_promisor() {
	git config extensions.partialClone evil; git config remote.evil.url "$BASE/remote.git"; git config remote.evil.uploadpack "touch $MARK;git-upload-pack"; git config remote.evil.promisor true
	git unpack-objects -q <$(echo .git/objects/pack/*.pack) || true
	mv .git/objects/pack "$OUT/pack"; mkdir .git/objects/pack; git unpack-objects -q <$(echo "$OUT"/pack/*.pack); rm -rf "$OUT/pack"
	for f in a.txt b.txt data.csv; do h=$(git rev-parse HEAD:$f); rm -f .git/objects/$(echo $h | cut -c1-2)/$(echo $h | cut -c3-); done
	for f in a.txt; do h=$(git rev-parse HEAD~1:$f); rm -f .git/objects/$(echo $h | cut -c1-2)/$(echo $h | cut -c3-); done
}
place_promisorssh() {
	place_promisor; git config --unset remote.evil.uploadpack; git config remote.evil.url ssh://host/x; git config core.sshCommand "$WS/evil"
}
place_promisorext() {
	place_promisor; git config --unset remote.evil.uploadpack; git config remote.evil.url "ext::sh -c touch% $MARK"; git config protocol.ext.allow always
}
place_signed() {
	{ git cat-file commit HEAD | sed '/^$/,$d'; printf 'gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\nsigned\n'; } >"$OUT/c"
	git update-ref refs/heads/main $(git hash-object -t commit -w "$OUT/c"); rm "$OUT/c"
	printf 'object %s\ntype commit\ntag s\ntagger A <a@b> 1 +0000\n\nx\n-----BEGIN PGP SIGNATURE-----\n\nx\n-----END PGP SIGNATURE-----\n' $(git rev-parse HEAD) >"$OUT/t"
	git update-ref refs/tags/s $(git hash-object -t tag -w "$OUT/t"); rm "$OUT/t"
	git config gpg.program "$WS/evil"; git config log.showSignature true
}
place_gpgformat() {
	place_signed; git config gpg.openpgp.program "$WS/evil"; git config gpg.x509.program "$WS/evil"; git config gpg.ssh.program "$WS/evil"; git config --unset log.showSignature
}
place_sshremote() { git config remote.origin.url ssh://host/x; git config core.sshCommand "touch $MARK;false"; git config ssh.variant simple; }
place_uploadpack() { git config remote.origin.uploadpack "touch $MARK;git-upload-pack"; git config remote.origin.receivepack "touch $MARK;git-receive-pack"; }
place_extremote() { git config remote.origin.url "ext::sh -c touch% $MARK"; git config protocol.ext.allow always; }
place_vcsremote() { git config remote.origin.vcs evil; cp evil bin/git-remote-evil; }
place_gitproxy() { git config remote.origin.url git://host/x; git config core.gitProxy "$WS/evil"; }
place_credential() { git config remote.origin.url http://evil.test:7778/x; git config credential.helper "!touch $MARK;false"; }
place_editor() { git config sequence.editor "touch $MARK;true"; git config core.editor "touch $MARK;true"; }
place_interactive() { git config interactive.diffFilter "touch $MARK;cat"; }
place_trailer() { git config trailer.x.command "touch $MARK"; git config trailer.x.cmd "touch $MARK"; git config trailer.x.key x; git config trailer.x.ifmissing add; }
place_archive() { git config tar.x.command "touch $MARK;cat"; git config tar.tar.gz.command "touch $MARK;gzip"; }
place_mergedriver() { echo '*.txt merge=x' >.git/info/attributes; git config merge.x.driver "touch $MARK;false"; git commit -qam three; git checkout -q feature; echo other >a.txt; git commit -qam other; git checkout -q main; }
place_tools() { git config diff.tool x; git config difftool.x.cmd "touch $MARK"; git config difftool.prompt false; git config merge.tool x; git config mergetool.x.cmd "touch $MARK"; git config web.browser x; git config browser.x.cmd "touch $MARK"; git config man.viewer x; git config man.x.cmd "touch $MARK"; }
place_rebase() { git config rebase.instructionFormat '%s'; git config sequence.editor "touch $MARK;true"; git commit -qam three; }
place_lfsconfig() { printf '[lfs]\n\turl = http://127.0.0.1:7777/x\n' >.lfsconfig; git config lfs.url http://127.0.0.1:7777/x; }
place_globalalias() { git config --global alias.lg "!touch $MARK"; git config --global core.fsmonitor "touch $MARK;false"; }
place_pagerconfig() { git config core.pager "touch $MARK;cat"; git config pager.log "touch $MARK;cat"; git config pager.status "touch $MARK;cat"; }
place_alternates() { git clone -q --bare . "$OUT/alt.git"; GIT_DIR="$OUT/alt.git" git hash-object -w "$OUT/secret.txt" >hash; echo "$OUT/alt.git/objects" >.git/objects/info/alternates; }
place_gitdirout() { git init -q --template= "$OUT/r"; cp "$OUT/secret.txt" "$OUT/r/s"; git -C "$OUT/r" add s; git -C "$OUT/r" commit -qm s; mkdir sub/x; echo "gitdir: $OUT/r/.git" >sub/x/.git; }
place_cmake() {
	printf 'CMAKE_GENERATOR:INTERNAL=Unix Makefiles\nCMAKE_HOME_DIRECTORY:INTERNAL=%s\nCMAKE_MAKE_PROGRAM:FILEPATH=make\nCMAKE_PROJECT_NAME:STATIC=x\n' "$WS" >sub/d/CMakeCache.txt
	printf 'all x:\n\t@:\n' >sub/d/Makefile
	printf 'x:=$(shell touch %s)\nall:\n\t@:\n' "$MARK" >evil.mk
}
place_worktreeout() { git config core.worktree "$OUT"; }

if [ "$PLACE" = app ]; then
	app
else
	cd "$WS"
	place_"$PLACE"
fi
