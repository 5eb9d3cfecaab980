import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.opensearch.analysis.common.CommonAnalysisPlugin;
import org.opensearch.common.settings.Settings;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/** A real OpenSearch node on loopback: java -cp 'jars/*:classes' OneNode HOME HTTP_PORT TRANSPORT_PORT */
public class OneNode extends Node {
    OneNode(Settings settings, Path home) {
        super(InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), home, () -> "one"),
              List.of(Netty4Plugin.class, CommonAnalysisPlugin.class), true);
    }

    public static void main(String[] arguments) throws Exception {
        Path home = Path.of(arguments[0]).toAbsolutePath();
        Settings settings = Settings.builder()
            .put("path.home", home.toString()).put("path.data", home.resolve("data").toString())
            .put("network.host", "127.0.0.1").put("http.port", arguments[1]).put("transport.port", arguments[2])
            .put("discovery.type", "single-node").put("cluster.name", "test").put("node.name", "one")
            .put("http.type", "netty4").put("transport.type", "netty4")
            .put("cluster.routing.allocation.disk.threshold_enabled", false).build();
        Node node = new OneNode(settings, home).start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> { try { node.close(); } catch (Exception e) { } }));
        Thread.currentThread().join();
    }
}
