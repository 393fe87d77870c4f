# . report.sh: reports of a section's program, in sh (with nc) or bash alone.
# report started | report progress 0.42 "half of it" | report finished | report error "no input"
report() {
    [ -n "$REDMESH_REPORT" ] || return 0
    word=$1
    shift
    line="$REDMESH_TOKEN $word $REDMESH_SECTION $*"
    if [ -n "$BASH_VERSION" ]; then
        exec 9<>"/dev/tcp/${REDMESH_REPORT%:*}/${REDMESH_REPORT#*:}" || return 1
        echo "$line" >&9
        read -r answer <&9
        exec 9<&-
    else
        answer=$(echo "$line" | nc -w 5 "${REDMESH_REPORT%:*}" "${REDMESH_REPORT#*:}")
    fi
    [ "$answer" = ok ] || { echo "report: $answer" >&2; return 1; }
}
