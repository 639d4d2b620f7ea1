package databases

import (
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
)

// Engine is a database management system. Its statements contain {database}, {user}, {password} and {connections},
// none of which needs quotes.
type Engine struct {
	// Name of the engine, and of the service that its broker offers.
	Name string
	// Limit is the name of the broker's parameter for the connections that a login may have at once.
	Limit string

	// programs that the engine consists of, and the Debian packages that have them.
	programs       []string
	debianPackages string
	// install returns the command that fills an empty folder, beside a file admin.
	install func(dir string) *exec.Cmd
	// serve returns the command that serves the folder, on the loopback address.
	serve func(dir string, port int) *exec.Cmd
	// stop ends the server at once, and what it has started.
	stop syscall.Signal
	// admin is the content of that file, with the password as {password}.
	admin string
	// home is the database to which an administrator connects.
	home string
	// open returns connections of a login, by an ordinary client of the engine; it connects at the first use.
	open func(Login) (*sql.DB, error)
	// scheme of URIs.
	scheme string

	addDatabase, setLimit, dropDatabase []string
	addLogin, dropLogin                 []string // in the database itself
	// Queries of names; that of limits is of one database.
	databases, logins, limit string
}

// Login has what an application needs to connect to its database: the credentials of a binding.
type Login struct {
	Engine   string `json:"engine"`
	URI      string `json:"uri"`
	Host     string `json:"host"`
	Port     int    `json:"port"`
	Database string `json:"database"`
	Username string `json:"username"`
	Password string `json:"password"`
}

func (l Login) address() string { return net.JoinHostPort(l.Host, strconv.Itoa(l.Port)) }

func (l Login) uri(scheme string) string {
	return (&url.URL{Scheme: scheme, User: url.UserPassword(l.Username, l.Password), Host: l.address(), Path: "/" + l.Database}).String()
}

// MariaDB of Debian. A login is a user; the number of its connections is kept in the comment of the database.
var MariaDB = &Engine{
	Name: "mariadb", Limit: "max_user_connections",
	programs: []string{"mariadb-install-db", "mariadbd"}, debianPackages: "mariadb-server-core mariadb-client-core",
	admin: "CREATE USER admin@'127.0.0.1' IDENTIFIED BY '{password}';\nGRANT ALL ON *.* TO admin@'127.0.0.1' WITH GRANT OPTION;\nDELETE FROM mysql.global_priv WHERE User = 'root';\nFLUSH PRIVILEGES;\n",
	install: func(dir string) *exec.Cmd {
		return exec.Command("mariadb-install-db", "--no-defaults", "--datadir="+filepath.Join(dir, "data"), "--auth-root-authentication-method=normal", "--skip-test-db")
	},
	serve: func(dir string, port int) *exec.Cmd {
		return exec.Command("mariadbd", "--no-defaults", "--datadir="+filepath.Join(dir, "data"), "--init-file="+filepath.Join(dir, "admin"),
			"--bind-address=127.0.0.1", fmt.Sprint("--port=", port), "--socket="+filepath.Join(dir, "socket"), "--pid-file="+filepath.Join(dir, "pid"),
			"--skip-name-resolve", "--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=0", "--performance-schema=off")
	},
	stop: syscall.SIGKILL,
	home: "mysql", scheme: "mysql",
	open: func(l Login) (*sql.DB, error) {
		config := mysql.NewConfig()
		config.Net, config.Addr, config.DBName, config.User, config.Passwd, config.Timeout = "tcp", l.address(), l.Database, l.Username, l.Password, 10*time.Second
		config.Logger = &mysql.NopLogger{} // of closed sessions, which tests close
		connector, err := mysql.NewConnector(config)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(connector), nil
	},
	addDatabase:  []string{"CREATE DATABASE {database} COMMENT '{connections}'"},
	setLimit:     []string{"ALTER DATABASE {database} COMMENT '{connections}'"},
	dropDatabase: []string{"DROP DATABASE IF EXISTS {database}"},
	addLogin: []string{
		"CREATE USER {user} IDENTIFIED BY '{password}' WITH MAX_USER_CONNECTIONS {connections}",
		"GRANT ALL ON {database}.* TO {user}",
	},
	dropLogin: []string{"ALTER USER IF EXISTS {user} ACCOUNT LOCK", "KILL USER {user}", "DROP USER IF EXISTS {user}"},
	databases: "SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'db%'",
	logins:    "SELECT user FROM mysql.user WHERE user LIKE 'u%'",
	limit:     "SELECT schema_comment FROM information_schema.schemata WHERE schema_name = '{database}'",
}

// PostgreSQL of Debian. A database and all in it belong to a role of its own, whose rights its logins inherit; so what
// one of them makes outlives it. The number of connections is kept in the comment of the database.
var PostgreSQL = &Engine{
	Name: "postgresql", Limit: "connection_limit",
	programs: []string{postgresql + "initdb", postgresql + "postgres"}, debianPackages: "postgresql",
	admin: "{password}\n",
	install: func(dir string) *exec.Cmd {
		return exec.Command(postgresql+"initdb", "--pgdata="+filepath.Join(dir, "data"), "--username=admin", "--pwfile="+filepath.Join(dir, "admin"),
			"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions")
	},
	serve: func(dir string, port int) *exec.Cmd {
		return exec.Command(postgresql+"postgres", "-D", filepath.Join(dir, "data"), "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-k", "", "-F", "-c", "shared_buffers=16MB")
	},
	stop: syscall.SIGQUIT,
	home: "postgres", scheme: "postgresql",
	open: func(l Login) (*sql.DB, error) {
		return sql.Open("pgx", l.uri("postgresql")+"?sslmode=disable&connect_timeout=10")
	},
	addDatabase: []string{
		"CREATE ROLE owner_of_{database}", "CREATE DATABASE {database} OWNER owner_of_{database}",
		"REVOKE ALL ON DATABASE {database} FROM PUBLIC", "COMMENT ON DATABASE {database} IS '{connections}'",
	},
	setLimit:     []string{"COMMENT ON DATABASE {database} IS '{connections}'"},
	dropDatabase: []string{"DROP DATABASE IF EXISTS {database} WITH (FORCE)", "DROP ROLE IF EXISTS owner_of_{database}"},
	addLogin: []string{
		"CREATE ROLE {user} LOGIN PASSWORD '{password}' CONNECTION LIMIT {connections} IN ROLE owner_of_{database}",
		"ALTER ROLE {user} SET role = owner_of_{database}",
	},
	dropLogin: []string{
		"ALTER ROLE {user} NOLOGIN", "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = '{user}'",
		"REASSIGN OWNED BY {user} TO owner_of_{database}", "DROP OWNED BY {user}", "DROP ROLE {user}",
	},
	databases: "SELECT datname FROM pg_database WHERE datname LIKE 'db%'",
	logins:    "SELECT rolname FROM pg_roles WHERE rolcanlogin AND rolname LIKE 'u%'",
	limit:     "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = '{database}'",
}

// postgresql is the folder of Debian's programs, which are not in PATH; that of the latest version, with a slash, or "".
var postgresql = func() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/") // sorted
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}()
