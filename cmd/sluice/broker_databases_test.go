package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/test/databases"
)

// seller is a broker that sells databases of a real server.
type seller struct {
	*gate
	server *databases.Server
	url    string
}

func sellDatabases(t *testing.T, engine *databases.Engine) *seller {
	t.Helper()
	server := databases.Start(t, engine)
	g := newGate(databases.NewBroker(server, "first", "first-password"))
	listener := httptest.NewServer(g)
	t.Cleanup(listener.Close)
	return &seller{gate: g, server: server, url: listener.URL}
}

// holds checks that the server has exactly those databases and logins that the broker has sold, and how many they are.
func (s *seller) holds(ctx context.Context, want int) error {
	var sold []string
	for _, path := range s.left() {
		switch parts := strings.Split(path, "/"); len(parts) { // "", v2, service_instances, ID, service_bindings, ID
		case 4:
			sold = append(sold, databases.DatabaseOf(parts[3]))
		case 6:
			sold = append(sold, databases.LoginOf(parts[5]))
		}
	}
	slices.Sort(sold)
	if has, err := s.server.Holds(ctx); err != nil || !slices.Equal(has, sold) || len(has) != want {
		return fmt.Errorf("the server has %v (%v), and %v was sold: want %d", has, err, sold, want)
	}
	return nil
}

// bind binds an instance of the page's plan, perhaps in place of another binding, and returns the credentials.
func (s *served) bind(t *testing.T, instance, id, predecessor string) databases.Login {
	t.Helper()
	request := `{"service_id": "` + serviceID + `", "plan_id": "` + planID + `"}`
	if predecessor != "" {
		request = `{"predecessor_binding_id": "` + predecessor + `"}`
	}
	status, body := s.send(t, "PUT", "/v2/service_instances/"+instance+"/service_bindings/"+id, request)
	var bound struct{ Credentials databases.Login }
	if err := json.Unmarshal([]byte(body), &bound); status != 201 || err != nil || bound.Credentials.Password == "" {
		t.Fatalf("the binding is answered %d %s (%v)", status, body, err)
	}
	return bound.Credentials
}

// unbind deletes a binding, and waits until it is gone.
func (s *served) unbind(t *testing.T, instance, id string) {
	t.Helper()
	path := "/v2/service_instances/" + instance + "/service_bindings/" + id
	s.send(t, "DELETE", path+"?service_id="+serviceID+"&plan_id="+planID, "")
	s.until("binding "+id+" is gone", func(ctx context.Context) error {
		status, body, err := s.ask(ctx, "GET", path, "")
		if err == nil && status != 404 {
			err = fmt.Errorf("it is %d %s", status, body)
		}
		return err
	})
}

// deprovision deletes an instance of the page's plan, and waits until it is gone.
func (s *served) deprovision(t *testing.T, instance string) {
	t.Helper()
	path := "/v2/service_instances/" + instance
	s.send(t, "DELETE", path+"?accepts_incomplete=true&service_id="+serviceID+"&plan_id="+planID, "")
	s.until(instance+" is gone", func(ctx context.Context) error {
		status, body, err := s.ask(ctx, "GET", path+"/last_operation", "")
		if err == nil && status != 410 && status != 404 {
			err = fmt.Errorf("it is %d %s", status, body)
		}
		return err
	})
}

// uses checks what an application does with a binding, and goes on doing when the binding is rotated: it connects, by
// an ordinary client of the engine, writes a row, and reads it with the credentials that replace the first. Those work
// until the binding is deleted, and not a moment longer.
func (s *served) uses(t *testing.T, at *seller, instance, engine string) {
	t.Helper()
	first := s.bind(t, instance, instance+"-a", "")
	if first.Engine != engine || !strings.HasPrefix(first.URI, cmp.Or(map[string]string{"mariadb": "mysql"}[engine], engine)+"://"+first.Username+":") {
		t.Errorf("the credentials are for %s, %s", first.Engine, first.URI)
	}
	db := openDatabase(t, at, first)
	for _, statement := range []string{"CREATE TABLE said (what VARCHAR(20))", "INSERT INTO said VALUES ('" + instance + "')"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %s: %v", engine, statement, err)
		}
	}
	second := s.bind(t, instance, instance+"-b", instance+"-a")
	if second.Username == first.Username || second.Password == first.Password || second.Database != first.Database {
		t.Errorf("the rotation gives %v after %v", second, first)
	}
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("the credentials before a rotation stop working: %v", err)
	}
	if err := at.holds(t.Context(), 3); err != nil {
		t.Error(err)
	}
	s.unbind(t, instance, instance+"-a")
	if err := db.PingContext(t.Context()); err == nil {
		t.Error("the connection outlives its binding")
	}
	if err := openDatabase(t, at, first).PingContext(t.Context()); err == nil {
		t.Error("the login outlives its binding")
	}
	var what string
	if err := openDatabase(t, at, second).QueryRowContext(t.Context(), "SELECT what FROM said").Scan(&what); err != nil || what != instance {
		t.Errorf("the next binding reads %q, %v", what, err)
	}
	s.unbind(t, instance, instance+"-b")
	if err := at.holds(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

// openDatabase returns connections of a login, at most one at a time.
func openDatabase(t *testing.T, at *seller, login databases.Login) *sql.DB {
	t.Helper()
	db, err := at.server.Open(login)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}
