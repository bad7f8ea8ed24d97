# Argument: a directory of the host. Looks for ways out of a workspace that has links in it.
cat link-to-file >/dev/null 2>&1 && echo "BREACH link to a file"
cat link-to-dir/secret >/dev/null 2>&1 && echo "BREACH link to a directory"
(echo over >link-to-file) 2>/dev/null && echo "BREACH wrote through a link"
(echo x >link-to-dir/planted) 2>/dev/null && echo "BREACH wrote through a directory link"
echo "$(cat inside)"
echo done
