# Where the database servers are, and as whom they run. Sourced by the scripts beside it.

# Prints the directory of `postgres` and `initdb`; Debian keeps it out of PATH.
postgres_bin() {
    if [[ -n ${TASKWHEEL_TEST_POSTGRES_BIN:-} ]]; then
        echo "$TASKWHEEL_TEST_POSTGRES_BIN"
        return
    fi
    local newest
    newest=$(printf '%s\n' /usr/lib/postgresql/*/bin/initdb | sort -V | tail -n 1)
    [[ -x $newest ]] || newest=$(command -v initdb) || return 1
    dirname "$(readlink -f "$newest")"
}

# Prints the path of `mariadbd`; an ordinary user's PATH has no /usr/sbin.
mariadb_bin() {
    if [[ -n ${TASKWHEEL_TEST_MYSQL_BIN:-} ]]; then
        echo "$TASKWHEEL_TEST_MYSQL_BIN"
        return
    fi
    PATH=$PATH:/usr/sbin command -v mariadbd
}

# Sets `as_user` to the prefix that runs a command as USER when we are root, and creates DIR for that user.
# PostgreSQL refuses to run as root. setpriv replaces itself by the command (runuser would stay as
# its parent), so that the process id the caller knows is the server's.
run_as() {
    local user=$1 dir=$2
    as_user=()
    mkdir -p "$dir"
    if [[ $EUID -eq 0 ]]; then
        as_user=(setpriv "--reuid=$user" "--regid=$user" --init-groups --)
        chown "$user:" "$dir"
    fi
}
