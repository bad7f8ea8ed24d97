# Plants what would run later, outside: beside it, ordinary changes that must arrive.
w() { mkdir -p "$(dirname "$1")" && printf 'planted\n' >>"$1"; }
for f in .git/hooks/pre-commit .git/config sub/.git/hooks/post-checkout sub/.git/config .gitmodules .gitconfig .bashrc .profile .zshrc \
	.envrc .npmrc .mcp.json .vscode/tasks.json .idea/w.xml .claude/settings.json .cursor/mcp.json .codex/config.toml .agents/x .husky/pre-commit \
	.GIT/config deep/er/.Git/config guarded/skills/x; do w "$f"; done
mv .git .git2; mkdir -p p/hooks; echo planted >p/hooks/pre-commit; mv p .git
ln -s /etc link; mkfifo fifo
rm -rf keep/.git
echo more >>changed
echo new >fresh
mkdir -p dir/below && echo deep >dir/below/file
rm gone
rm -rf gone-dir
chmod 777 changed
rm -rf replaced && mkdir replaced && echo other >replaced/b
echo done
