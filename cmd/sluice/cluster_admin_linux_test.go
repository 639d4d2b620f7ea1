package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// terminal returns a terminal on which somebody has typed an answer.
func terminal(t *testing.T, typed string) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close(); _ = master.Close() })
	if _, err := io.WriteString(master, typed); err != nil {
		t.Fatal(err)
	}
	return slave
}

// contexts writes a kubeconfig with contexts; the first one is current.
func contexts(t *testing.T, names ...string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	for _, name := range names {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + name + ".example"}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	}
	if len(names) > 0 {
		config.CurrentContext = names[0]
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestAdministratorsContext: no object is created on a cluster only because its context is
// the current one.
func TestAdministratorsContext(t *testing.T) {
	for _, row := range []struct {
		name    string
		has     []string // contexts; the first is current
		flags   string
		byName  bool   // the file is named by --from-kubeconfig, not by $KUBECONFIG
		typed   string // on a terminal; none if empty
		asks    bool
		uses    string // none if refused
		refusal string
	}{
		{name: "named", has: []string{"prod", "kind"}, flags: "--context kind", uses: "kind"},
		{name: "named on a terminal", has: []string{"prod", "kind"}, flags: "--context kind", typed: "n\n", uses: "kind"},
		{name: "named and not there", has: []string{"prod"}, flags: "--context kind", refusal: "kind"},
		{name: "several, nobody to ask", has: []string{"prod", "kind"}, refusal: "--context is needed: the kubeconfig"},
		{name: "several in a file that is named, nobody to ask", has: []string{"prod", "kind"}, byName: true, refusal: "has kind, prod"},
		{name: "several, agreed to", has: []string{"prod", "kind"}, typed: "y\n", asks: true, uses: "prod"},
		{name: "several, not agreed to", has: []string{"prod", "kind"}, typed: "\n", asks: true, refusal: "nothing was done"},
		{name: "one in a file that is named", has: []string{"kind"}, byName: true, typed: "n\n", uses: "kind"},
		{name: "the only one, nobody to ask", has: []string{"kind"}, uses: "kind"},
		{name: "the only one, not agreed to", has: []string{"kind"}, typed: "no\n", asks: true, refusal: "nothing was done"},
		{name: "none", refusal: "no context in the kubeconfig"},
	} {
		t.Run(row.name, func(t *testing.T) {
			file := contexts(t, row.has...)
			t.Setenv("KUBECONFIG", file)
			f, cmd := &adminFlags{}, &cobra.Command{}
			f.bind(cmd, "member cluster")
			args := strings.Fields(row.flags)
			if row.byName {
				args = append(args, "--from-kubeconfig", file)
			}
			if err := cmd.ParseFlags(args); err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			cmd.SetErr(&said)
			cmd.SetIn(strings.NewReader(""))
			if row.typed != "" {
				cmd.SetIn(terminal(t, row.typed))
			}
			config, err := f.config(cmd)
			if row.uses == "" {
				if err == nil || !strings.Contains(err.Error(), row.refusal) {
					t.Errorf("got %v, %v, want %q", config, err, row.refusal)
				}
			} else if err != nil || config.Host != "https://"+row.uses+".example" {
				t.Errorf("got %v, %v, want %s", config, err, row.uses)
			} else if !strings.Contains(said.String(), "context "+row.uses+": https://"+row.uses+".example") {
				t.Errorf("it does not say which: %q", said.String())
			}
			if asked := strings.Contains(said.String(), "Use context"); asked != row.asks {
				t.Errorf("asked: %q", said.String())
			}
			if row.asks && !strings.Contains(said.String(), "at https://"+row.has[0]+".example?") {
				t.Errorf("the question names no server: %q", said.String())
			}
		})
	}
}
