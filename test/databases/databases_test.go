package databases

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/controlplane"
)

// TestBroker takes databases through their life. A login reaches its own database, with as many connections as were
// ordered; what it makes outlives it; an unbind closes its connections; nothing is left in the end.
func TestBroker(t *testing.T) {
	for _, engine := range []*Engine{MariaDB, PostgreSQL} {
		t.Run(engine.Name, func(t *testing.T) {
			t.Parallel()
			server := Start(t, engine)
			handler := NewBroker(server, "user", "password")
			ask := func(want int, method, path, more string) (login Login) {
				t.Helper()
				ids := fmt.Sprintf(`"service_id": %q, "plan_id": "%[1]s-small"`, engine.Name)
				r := httptest.NewRequestWithContext(t.Context(), method, "/v2/service_instances/"+path+"?service_id="+engine.Name+"&plan_id="+engine.Name+"-small",
					bytes.NewBufferString("{"+ids+more+"}"))
				r.SetBasicAuth("user", "password")
				r.Header.Set("X-Broker-API-Version", "2.17")
				answer := httptest.NewRecorder()
				handler.ServeHTTP(answer, r)
				if answer.Code != want {
					t.Fatalf("%s %s is answered %d %s, want %d", method, path, answer.Code, answer.Body, want)
				}
				var said struct{ Credentials Login }
				if err := json.Unmarshal(answer.Body.Bytes(), &said); err != nil {
					t.Fatal(err)
				}
				return said.Credentials
			}
			order := func(connections int) string {
				return fmt.Sprintf(`, "parameters": {%q: %d}`, engine.Limit, connections)
			}
			ask(http.StatusBadRequest, "PUT", "one", order(11))
			ask(http.StatusCreated, "PUT", "one", order(2))
			ask(http.StatusOK, "PUT", "one", order(2))
			ask(http.StatusConflict, "PUT", "one", order(3))
			ask(http.StatusCreated, "PUT", "other", "")
			first := ask(http.StatusCreated, "PUT", "one/service_bindings/a", "")
			if again := ask(http.StatusOK, "PUT", "one/service_bindings/a", ""); again != first {
				t.Errorf("bound again, it gives %v, want %v", again, first)
			}
			if holds, err := server.Holds(t.Context()); err != nil || len(holds) != 3 || !slices.Contains(holds, DatabaseOf("one")) || !slices.Contains(holds, LoginOf("a")) {
				t.Errorf("the server holds %v, %v", holds, err)
			}

			db := open(t, server, first)
			carryOut(t, db, "CREATE TABLE said (what VARCHAR(20))", "INSERT INTO said VALUES ('hello')")
			elsewhere := first
			elsewhere.Database = DatabaseOf("other")
			if err := open(t, server, elsewhere).PingContext(t.Context()); err == nil {
				t.Error("a login reaches the database of another instance")
			}
			held := []*sql.Conn{connect(t, db), connect(t, db)}
			if conn, err := db.Conn(t.Context()); err == nil {
				_ = conn.Close()
				t.Error("a login has more connections than were ordered")
			}
			second := open(t, server, ask(http.StatusCreated, "PUT", "one/service_bindings/b", ""))
			read := func(when string) {
				t.Helper()
				var what string
				if err := second.QueryRowContext(t.Context(), "SELECT what FROM said").Scan(&what); err != nil || what != "hello" {
					t.Errorf("%s, another login reads %q, %v", when, what, err)
				}
			}
			read("beside the first one")
			ask(http.StatusOK, "DELETE", "one/service_bindings/a", "")
			ask(http.StatusGone, "DELETE", "one/service_bindings/a", "")
			for _, conn := range held {
				if _, err := conn.ExecContext(t.Context(), "SELECT 1"); err == nil {
					t.Error("a connection outlives its login")
				}
			}
			read("after the first one")
			carryOut(t, second, "DROP TABLE said")
			ask(http.StatusOK, "PATCH", "one", order(3))
			ask(http.StatusOK, "PUT", "one", order(3))
			ask(http.StatusOK, "DELETE", "one/service_bindings/b", "")
			for _, instance := range []string{"one", "other"} {
				ask(http.StatusOK, "DELETE", instance, "")
				ask(http.StatusGone, "DELETE", instance, "")
				ask(http.StatusNotFound, "GET", instance, "")
			}
			if holds, err := server.Holds(t.Context()); err != nil || len(holds) > 0 {
				t.Errorf("left on the server: %v, %v", holds, err)
			}
		})
	}
}

func open(t *testing.T, server *Server, login Login) *sql.DB {
	t.Helper()
	db, err := server.Open(login)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxIdleConns(0)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// connect opens a connection. One that was closed or refused a moment ago may still count for the server.
func connect(t *testing.T, db *sql.DB) (conn *sql.Conn) {
	t.Helper()
	var refused error
	err := controlplane.Until(t.Context(), 5*time.Millisecond, 100*time.Millisecond, 10*time.Second, func(ctx context.Context) (bool, error) {
		conn, refused = db.Conn(ctx)
		return refused == nil, nil
	})
	if err != nil {
		t.Fatalf("%v: %v", err, refused)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func carryOut(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}
