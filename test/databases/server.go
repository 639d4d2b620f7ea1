package databases

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/loopback"
)

// Server is a database server on the loopback address.
type Server struct {
	engine *Engine
	port   int
	// secret from which the passwords of logins are made, so that a repeated bind answers the same.
	secret string
	// admin is connected to the engine's home, as the administrator.
	admin         *sql.DB
	adminPassword string
}

// Start starts a server, and returns once it answers. It ends with the test, and its data with it. The test is skipped
// if the engine is not installed.
func Start(t *testing.T, of *Engine) *Server {
	t.Helper()
	for _, program := range of.programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%v; on Debian: apt-get install %s", err, of.debianPackages)
		}
	}
	s := &Server{engine: of, port: loopback.Port(), secret: rand.Text(), adminPassword: rand.Text()}
	dir, err := os.MkdirTemp("", "sluice-"+of.Name) // not below the test's folder, where only its own user gets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "admin"), []byte(strings.ReplaceAll(of.admin, "{password}", s.adminPassword)), 0o600),
		give(dir), give(filepath.Join(dir, "admin")),
	)
	if err != nil {
		t.Fatal(err)
	}
	install := of.install(dir)
	install.Dir, install.SysProcAttr = dir, unprivileged()
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("install %s: %v\n%s", of.Name, err, out)
	}
	ended := run(t, of, dir, s.port)
	if s.admin, err = s.open(s.asAdmin(of.home)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.admin.Close() })
	s.awaitAnswer(t, ended)
	return s
}

// run runs the server until the test ends, and returns a channel that is closed at its end. It dies with the thread that
// has started it, which waits for it.
func run(t *testing.T, of *Engine, dir string, port int) <-chan struct{} {
	t.Helper()
	log, err := os.Create(filepath.Join(t.ArtifactDir(), of.Name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	server := of.serve(dir, port)
	server.Dir, server.SysProcAttr = dir, unprivileged()
	server.Stdout, server.Stderr = log, log
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := server.Start()
		started <- err
		if err == nil {
			_ = server.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(of.stop)
		<-ended
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the log of %s (its end):\n%s", of.Name, text[max(0, len(text)-4000):])
		}
	})
	return ended
}

func (s *Server) awaitAnswer(t *testing.T, ended <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := s.admin.PingContext(ctx)
		if err == nil {
			return
		}
		select {
		case <-ended:
			t.Fatalf("%s has ended by itself", s.engine.Name)
		case <-ctx.Done():
			t.Fatalf("%s does not answer: %v", s.engine.Name, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Open returns connections of a login to its database, by the client library of its engine. It connects at the first
// use.
func (s *Server) Open(login Login) (*sql.DB, error) {
	return s.engine.open(login)
}

// open is Open at this server.
func (s *Server) open(login Login) (*sql.DB, error) {
	login.Host, login.Port = "127.0.0.1", s.port
	return s.Open(login)
}

func (s *Server) asAdmin(database string) Login {
	return Login{Database: database, Username: "admin", Password: s.adminPassword}
}

// Holds returns the names of the databases and logins on the server, sorted.
func (s *Server) Holds(ctx context.Context) ([]string, error) {
	var all []string
	for _, query := range []string{s.engine.databases, s.engine.logins} {
		rows, err := s.admin.QueryContext(ctx, query)
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				return nil, err
			}
			all = append(all, name)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, err
		}
	}
	slices.Sort(all)
	return all, nil
}

// DatabaseOf returns the name of the database of an instance, by its id at the broker.
func DatabaseOf(instance string) string { return "db" + digest(instance) }

// LoginOf returns the user name of a binding, by its id at the broker.
func LoginOf(binding string) string { return "u" + digest(binding) }

func digest(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:12])
}

// login returns the login of a binding, whether there is one or not.
func (s *Server) login(database, binding string) Login {
	mac := hmac.New(sha256.New, []byte(s.secret))
	mac.Write([]byte(binding))
	l := Login{
		Engine: s.engine.Name, Host: "127.0.0.1", Port: s.port,
		Database: database, Username: LoginOf(binding), Password: hex.EncodeToString(mac.Sum(nil)),
	}
	l.URI = l.uri(s.engine.scheme)
	return l
}

// connections returns the number of connections that logins to a database may have; 0 if there is no such database.
func (s *Server) connections(ctx context.Context, database string) (int, error) {
	var text string
	err := s.admin.QueryRowContext(ctx, strings.ReplaceAll(s.engine.limit, "{database}", database)).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// hasLogin reports whether a login is there.
func (s *Server) hasLogin(ctx context.Context, login Login) (bool, error) {
	held, err := s.Holds(ctx)
	return slices.Contains(held, login.Username), err
}

// carryOut runs statements as an administrator, in the login's database if inside says so.
func (s *Server) carryOut(ctx context.Context, inside bool, statements []string, login Login, connections int) error {
	db := s.admin
	if inside {
		var err error
		if db, err = s.open(s.asAdmin(login.Database)); err != nil {
			return err
		}
		defer db.Close() //nolint:errcheck // all was carried out, or failed
	}
	values := strings.NewReplacer("{database}", login.Database, "{user}", login.Username, "{password}", login.Password, "{connections}", strconv.Itoa(connections))
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, values.Replace(statement)); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}
