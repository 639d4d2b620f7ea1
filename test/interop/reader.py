"""A reader of a cluster's capacity that shares no code with Sluice: the service resource_reader of the paper
(Muscarello, section 4.4.1), or sluice.resources.v1, by grpcio over TLS.

    reader.py CERTIFICATE KEY SERVICE

prints "listening PORT"; then each line "NAME=QUANTITY ..." on the standard input is the new capacity, of which
subscribers are notified. It prints "forgotten CLUSTER" when it is told to forget one, and ends with its input.
"""

import sys
import threading
from concurrent import futures

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

STRING, MESSAGE = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
ONE, MANY = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL, descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED


def messages():
    """Builds the messages of the paper's schema."""
    file = descriptor_pb2.FileDescriptorProto(name="resource_reader.proto", syntax="proto3")
    for name, field in (("ReadRequest", "originator"), ("SubscribeRequest", None), ("RemoveRequest", "cluster"),
                        ("UpdateNotification", None), ("RemoveResponse", None)):
        message = file.message_type.add(name=name)
        if field:
            message.field.add(name=field, number=1, type=STRING, label=ONE)
    response = file.message_type.add(name="ReadResponse")
    entry = response.nested_type.add(name="ResourcesEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=STRING, label=ONE)
    entry.field.add(name="value", number=2, type=STRING, label=ONE)
    response.field.add(name="resources", number=1, type=MESSAGE, label=MANY, type_name=".ReadResponse.ResourcesEntry")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    return {m.name: factory.GetPrototype(pool.FindMessageTypeByName(m.name)) for m in file.message_type}


class Reader:
    def __init__(self, message):
        self.message, self.resources, self.version = message, {}, 0
        self.changed = threading.Condition()

    def has(self, resources):
        with self.changed:
            self.resources, self.version = resources, self.version + 1
            self.changed.notify_all()

    def read(self, request, context):
        with self.changed:
            return self.message["ReadResponse"](resources=self.resources)

    def subscribe(self, request, context):
        seen = None  # a notification at once
        while context.is_active():
            with self.changed:
                self.changed.wait_for(lambda: self.version != seen, timeout=0.2)
                if self.version == seen:
                    continue
                seen = self.version
            yield self.message["UpdateNotification"]()

    def remove(self, request, context):
        print("forgotten", request.cluster, flush=True)
        return self.message["RemoveResponse"]()


def handlers(reader, service):
    read, subscribe, remove = ("ReadResources", "Subscribe", "RemoveCluster")
    if service != "resource_reader":
        read, remove = "Read", "Forget"
    kinds = reader.message

    def method(make, behavior, request):
        return make(behavior, request_deserializer=kinds[request].FromString, response_serializer=lambda m: m.SerializeToString())

    return grpc.method_handlers_generic_handler(service, {
        read: method(grpc.unary_unary_rpc_method_handler, reader.read, "ReadRequest"),
        subscribe: method(grpc.unary_stream_rpc_method_handler, reader.subscribe, "SubscribeRequest"),
        remove: method(grpc.unary_unary_rpc_method_handler, reader.remove, "RemoveRequest"),
    })


def main(certificate, key, service):
    with open(key, "rb") as k, open(certificate, "rb") as c:
        secured = grpc.ssl_server_credentials([(k.read(), c.read())])
    reader = Reader(messages())
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    server.add_generic_rpc_handlers((handlers(reader, service),))
    port = server.add_secure_port("127.0.0.1:0", secured)
    server.start()
    print("listening", port, flush=True)
    for line in sys.stdin:
        reader.has(dict(pair.split("=") for pair in line.split()))
    server.stop(0)


main(*sys.argv[1:])
