package placement

import (
	"fmt"
	"maps"
	"slices"

	memdb "github.com/hashicorp/go-memdb"

	"github.com/sluice-dev/sluice/internal/lists"
)

// Tables and indexes of the inventory's store of record. One transaction covers all tables, so
// that a snapshot shows clusters and reservations of one instant.
const (
	tableCluster     = "cluster"
	tableReservation = "reservation"
	tableHolding     = "holding"
	tableHub         = "hub"
	tableNeighbours  = "neighbours"

	indexID      = "id" // name of a cluster; instance and cluster of a reservation; holder, label and value of neighbours
	indexReady   = "ready"
	indexCluster = "cluster"
	indexOf      = "id_prefix" // instance and "": its reservations; holder, label and "": its neighbours
	indexHolder  = "holder"
	indexHost    = "host"
)

// Reservation is capacity of a cluster that an instance holds.
type Reservation struct {
	Instance  string
	Cluster   string
	Resources Resources
	// Prices of the resources, in billionths an hour, by the names that quotas have for them; see priceIn.
	Prices Resources
	// Pods that the instance is meant to run there, see Request.LargestPods.
	Pods []Resources
	// Holders are the platform, organization, space and application that the instance belongs
	// to.
	Holders []string
	// Class is the priority class of the instance; empty while an operation is under way,
	// because it cannot be displaced then.
	Class string
	// Hub through which the instance is reached; empty if there is none.
	Hub string
	// Hosts that the instance has asked for its public ports.
	Hosts []string
	// Ports are its public ports on the cluster.
	Ports Ports
}

// equal reports whether two reservations of an instance on a cluster are the same.
func (r *Reservation) equal(other *Reservation) bool {
	return maps.Equal(r.Resources, other.Resources) && maps.Equal(r.Prices, other.Prices) && slices.EqualFunc(r.Pods, other.Pods, maps.Equal) &&
		slices.Equal(r.Holders, other.Holders) && r.Class == other.Class && r.Hub == other.Hub && lists.Same(r.Hosts, other.Hosts) && maps.Equal(r.Ports, other.Ports)
}

func newStore() *memdb.MemDB {
	field := func(name string) memdb.Indexer { return &memdb.StringFieldIndex{Field: name} }
	schema := &memdb.DBSchema{Tables: map[string]*memdb.TableSchema{
		tableCluster: {Name: tableCluster, Indexes: map[string]*memdb.IndexSchema{
			indexID:    {Name: indexID, Unique: true, Indexer: field("Name")},
			indexReady: {Name: indexReady, Indexer: &memdb.BoolFieldIndex{Field: "Ready"}},
		}},
		tableReservation: {Name: tableReservation, Indexes: map[string]*memdb.IndexSchema{
			indexID: {Name: indexID, Unique: true, Indexer: &memdb.CompoundIndex{
				Indexes: []memdb.Indexer{field("Instance"), field("Cluster")},
			}},
			indexCluster: {Name: indexCluster, Indexer: field("Cluster")},
			indexHolder:  {Name: indexHolder, AllowMissing: true, Indexer: &memdb.StringSliceFieldIndex{Field: "Holders"}},
			indexHost:    {Name: indexHost, AllowMissing: true, Indexer: &memdb.StringSliceFieldIndex{Field: "Hosts"}},
		}},
		tableHolding: {Name: tableHolding, Indexes: map[string]*memdb.IndexSchema{
			indexID: {Name: indexID, Unique: true, Indexer: field("Holder")},
		}},
		tableHub: {Name: tableHub, Indexes: map[string]*memdb.IndexSchema{
			indexID: {Name: indexID, Unique: true, Indexer: field("Hub")},
		}},
		tableNeighbours: {Name: tableNeighbours, Indexes: map[string]*memdb.IndexSchema{
			indexID: {Name: indexID, Unique: true, Indexer: &memdb.CompoundIndex{
				Indexes: []memdb.Indexer{field("Holder"), field("Label"), field("Value")},
			}},
		}},
	}}
	store, err := memdb.NewMemDB(schema)
	if err != nil {
		panic(fmt.Sprintf("placement: schema of the inventory: %v", err)) // a constant schema
	}
	return store
}

// rows lists the objects that an index holds under a key. Errors of go-memdb's reads and writes
// are about unknown tables, indexes and types, never about data; check turns them into panics.
func rows[T any](txn *memdb.Txn, table, index string, key ...any) []*T {
	found, err := txn.Get(table, index, key...)
	check(err)
	var out []*T
	for object := found.Next(); object != nil; object = found.Next() {
		out = append(out, object.(*T))
	}
	return out
}

// row returns the object with an id, or nil.
func row[T any](txn *memdb.Txn, table string, id ...any) *T {
	object, err := txn.First(table, indexID, id...)
	check(err)
	if object == nil {
		return nil
	}
	return object.(*T)
}

func check(err error) {
	if err != nil {
		panic(fmt.Sprintf("placement: inventory: %v", err))
	}
}
